"""Search algorithms for binary pymoo problems. They know nothing of networks and need no torch."""

from .nsga2 import nsga2

__all__ = ["nsga2"]
