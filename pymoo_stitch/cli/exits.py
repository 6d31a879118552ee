"""Exit codes other than 0."""

ERROR, USAGE, INTERRUPTED, TERMINATED = 1, 2, 130, 143
"""Something failed; the options are wrong (argparse's own); Ctrl-C; SIGTERM."""
