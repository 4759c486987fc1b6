"""The gateway: the HTTP doors of Suture, and the console page. The only package that imports fastapi; it runs no workflow."""
