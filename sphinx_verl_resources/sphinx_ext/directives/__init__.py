"""What people write in pages. A directive reads its options, asks the catalog and leaves plain nodes."""
