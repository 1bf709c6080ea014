"""Small datasets with known answers, shared by the tests."""
