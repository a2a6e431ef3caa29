"""Transport: requests as steps, retries, HTTP."""
