"""`python -m tools.reference`: writes docs/reference."""

from __future__ import annotations

from tools.reference import FOLDER, pages


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        changed = not (FOLDER / name).exists() or (FOLDER / name).read_text() != text
        (FOLDER / name).write_text(text)
        print(f"docs/reference/{name}: {'written' if changed else 'unchanged'}")


if __name__ == "__main__":
    main()
