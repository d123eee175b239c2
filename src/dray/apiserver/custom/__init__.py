"""Kinds of other people: CustomResourceDefinitions, and the objects of the kinds that they define.

``definition`` says whether a definition can be served, ``structure`` compiles its schemas, ``shaping`` prunes and defaults
objects, ``validation`` and ``rules`` check them, ``serving`` makes an entry of the registry of each version, and ``definitions``
keeps what is served in step with what is stored. A kind that is defined is then served like any other.
"""
