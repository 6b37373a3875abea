"""``python -m mlmclm``: the same as the ``mlmclm`` command."""

from __future__ import annotations

from mlmclm.cli import main

if __name__ == "__main__":
    main()
