"""All pictures as one HTML page that contains them: a file that can be sent, and opened without a server."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from pathlib import Path

PAGE = "index.html"
_HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>body {{ font: 16px/1.5 sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em }}
img {{ max-width: 100% }}</style>
<h1>{title}</h1>
"""


def write_page(directory: Path, title: str, pictures: Sequence[Path], captions: Mapping[str, str]) -> Path:
    """Writes the page, and returns its path. `captions` maps the pictures' names, without suffix, to their captions."""
    parts = [_HEAD.format(title=html.escape(title))]
    for picture in pictures:
        caption = html.escape(captions[picture.stem])
        image = base64.b64encode(picture.read_bytes()).decode()
        parts.append(f'<h2>{caption}</h2>\n<img alt="{caption}" src="data:image/png;base64,{image}">\n')
    path = directory / PAGE
    path.write_text("".join(parts) + "</html>\n", encoding="utf-8")
    return path
