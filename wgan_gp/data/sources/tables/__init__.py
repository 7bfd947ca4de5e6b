"""Tables in files: CSV, TSV, Parquet, Feather and Excel."""
