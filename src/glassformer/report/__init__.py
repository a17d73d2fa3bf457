"""What people look at: views of the values that other rooms return."""
