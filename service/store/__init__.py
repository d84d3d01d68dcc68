"""The database, the only source of truth: tables, migrations, and one file of queries per aggregate."""
