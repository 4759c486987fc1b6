"""What the schema of the next release could bring: each kind of expansion that CONTRIBUTING allows, on every table."""
