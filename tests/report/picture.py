"""README's picture: the top of a run's report as a browser shows it. `make picture RUN=runs/tiny-cpu`."""

import argparse
from pathlib import Path

from PIL import Image

from r1zero.report.build import write
from tests.report.browser import browser

WIDTH, HEIGHT = 1280, 872
COLOURS = 128
"""Of the PNG's palette: a page has few, and a quarter of the bytes is left."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, nargs="?", default=Path("runs/tiny-cpu"))
    parser.add_argument("-o", "--out", type=Path, default=Path(".github/report.png"))
    arguments = parser.parse_args()
    page = arguments.run / "report.html"
    write([arguments.run], page)
    arguments.out.parent.mkdir(exist_ok=True)
    with browser() as shown:
        shown.width(WIDTH, height=HEIGHT)
        shown.open(page.resolve().as_uri())
        shown.driver.save_screenshot(str(arguments.out))
    Image.open(arguments.out).convert("RGB").quantize(COLOURS).save(arguments.out, optimize=True)
    print(f"{arguments.out} ({arguments.out.stat().st_size / 1000:.0f} kB)")


if __name__ == "__main__":
    main()
