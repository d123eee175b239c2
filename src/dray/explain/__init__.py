"""Reasons into words, tables and pictures. Nothing here decides anything."""
