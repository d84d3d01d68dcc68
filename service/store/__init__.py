"""The database: the only truth. Tables, migrations, and one file of queries an aggregate."""
