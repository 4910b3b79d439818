"""What people see: installed as edgespec.tui."""
