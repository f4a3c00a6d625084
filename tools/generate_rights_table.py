"""Writes the table of the rights that each API requires into `docs/authorization.md`, from the code's own table.

python tools/generate_rights_table.py            write it
python tools/generate_rights_table.py --check    exit 1 if the file is not what would be written
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from barnabas.broker.requests.api_checks import CHECKS, check_of
from barnabas.protocol.api import BROKER_APIS, CONTROLLER_APIS
from barnabas.protocol.messages.index import request_class

TARGET: Final = Path(__file__).resolve().parent.parent / "docs" / "authorization.md"
_BEGIN: Final = "<!-- rights: written by tools/generate_rights_table.py -->"
_END: Final = "<!-- rights end -->"


def table() -> str:
    lines = ["| API | requires | a client without the right gets |", "|---|---|---|"]
    rows = {(key, offer.name) for offers in (BROKER_APIS, CONTROLLER_APIS) for key, offer in offers.items()}
    for key, name in sorted(rows):
        shown = f"{request_class(key).NAME.removesuffix('Request')} ({key})"
        if name == "fetch_metadata":
            shown += " to a controller"
        lines.append(f"| {shown} | {CHECKS[name].required} | {CHECKS[name].refusal} |")
        on_controller = check_of(name, on_controller=True)
        if on_controller is not CHECKS[name]:
            lines.append(f"| {shown} to a controller | {on_controller.required} | {on_controller.refusal} |")
    return "\n".join(lines)


def written(text: str) -> str:
    """Returns the page with the current table."""
    head, _, rest = text.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    return f"{head}{_BEGIN}\n\n{table()}\n\n{_END}{tail}"


def main() -> int:
    text = TARGET.read_text(encoding="utf-8")
    if "--check" in sys.argv:
        return int(text != written(text))
    TARGET.write_text(written(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
