"""Pictures in folders and archives: their files, their labels, and how they are decoded."""
