"""``python -m memx``."""

from .cli import main

main()
