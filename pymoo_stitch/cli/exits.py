"""What a shell is told, beside 0."""

ERROR, USAGE, INTERRUPTED = 1, 2, 130
"""Something failed; the options are wrong (argparse's own); Ctrl-C."""
