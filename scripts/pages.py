"""Regenerate the pages that come from the program itself: `make docs`."""

from pathlib import Path

from scripts import api_page, commands_page

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {"commands.md": commands_page.page, "api.md": api_page.page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
