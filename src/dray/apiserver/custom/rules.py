"""tmp"""
from __future__ import annotations
class Rules:
    def __init__(self, root): pass
    def problems(self, obj, old): return iter(())
class Compiled:
    def __init__(self, node, path): pass
    def problems(self): return iter(())
