"""Views: built-in SQL, user files, incremental refresh."""
