"""The fields of a class as a table in the reference: what stands in a comment behind a field says what it is."""

from __future__ import annotations

import re
from typing import Any, Final

import griffe

__all__ = ["FieldTables"]

_COMMENT: Final = re.compile(r"  # (.+)$")
_HEAD: Final = "| field | type | what it is |\n|---|---|---|\n"


class FieldTables(griffe.Extension):
    """Adds the table to the docstring of a class that is made of its fields."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Hear of a class that has been read."""
        made_of_fields = "__init__" not in cls.members and "Settings" not in map(str, cls.bases)
        rows = [_row(field) for field in cls.attributes.values() if _is_field(field)] if made_of_fields else []
        if cls.docstring and rows:
            cls.docstring.value += f"\n\n{_HEAD}" + "\n".join(rows)


def _is_field(attribute: griffe.Attribute) -> bool:
    return bool(attribute.annotation) and "property" not in attribute.labels and attribute.is_public


def _row(field: griffe.Attribute) -> str:
    comment = _COMMENT.search(field.source)
    return f"| `{field.name}` | `{field.annotation}` | {comment[1] if comment else ''} |"
