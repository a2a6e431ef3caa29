"""What an operator needs: node key, metrics, retention, backup, registration in a registry."""
