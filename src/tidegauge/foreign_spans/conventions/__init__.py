"""How each convention of span attributes is read: a module a convention."""
