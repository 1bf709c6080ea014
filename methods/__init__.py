"""Method plugins: one file a method, shared pieces with a leading underscore."""
