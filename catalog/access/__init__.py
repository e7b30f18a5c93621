"""Who may do what: callers and their roles, the API's routes, and requests that are done once however often they come.

Decisions are pure functions; nothing here verifies a token: API Gateway did that before anything of ours ran.
"""
