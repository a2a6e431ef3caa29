"""Views: built-in SQL, user files, incremental refresh."""

from enc.dataview.views.catalog import view

__all__ = ["view"]
