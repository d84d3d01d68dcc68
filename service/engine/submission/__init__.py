"""What people paste of their benchmarks: a command and its output, mangled by chats and terminals."""
