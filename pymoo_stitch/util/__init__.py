"""Small things that any package may use, each module on its own: tables for terminals, files that are written whole or
not at all, digests, fronts, and names that are imported late.

May import: nothing of ours.
"""
