"""Views: the built-in ones (`built_in/*.sql`), those of users, and their incremental refresh."""

from enc.dataview.views.catalog import view

__all__ = ["view"]
