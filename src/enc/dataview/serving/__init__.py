"""What people and programs read: views in a database, served over HTTP. Nothing here but `publish` needs Spark."""
