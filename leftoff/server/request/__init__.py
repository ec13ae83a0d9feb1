"""What a client asks for, in no dialect: fields, messages, tools, response format, and the jobs built from them."""
