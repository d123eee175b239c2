"""Admission: policies written in CEL that look at writes before they are stored."""
