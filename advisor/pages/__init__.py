"""HTML pages: parse, call a service or selector, render. No rules, numbers or SQL of their own."""
