"""Pages for the health tests: errors as proxies and servers word them, and normal pages that mention them."""

from __future__ import annotations

NGINX_PHRASES = {
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Temporarily Unavailable",
    504: "Gateway Time-out",
}
PHRASES = {**NGINX_PHRASES, 503: "Service Unavailable", 504: "Gateway Timeout"}
GATEWAY_ERRORS = {code: PHRASES[code] for code in (502, 503, 504)}
CLOUDFLARE = {
    502: "Bad gateway",
    504: "Gateway time-out",
    520: "Web server is returning an unknown error",
    521: "Web server is down",
    522: "Connection timed out",
    523: "Origin is unreachable",
    524: "A timeout occurred",
    525: "SSL handshake failed",
    526: "Invalid SSL certificate",
}
FILLER = "<div>" + "<p>what happened, and what can be done about it</p>" * 40 + "</div>"


def _nginx(title: str, server: str) -> str:
    return (
        f"<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{title}</h1></center>\r\n"
        f"<hr><center>{server}</center>\r\n</body>\r\n</html>\r\n"
    )


def _cloudflare(code: int, phrase: str) -> str:
    return (
        "<!DOCTYPE html>\n<!--[if lt IE 7]> <html class='ie6'> <![endif]-->\n<!--[if gt IE 8]><!--> <html> "
        f"<!--<![endif]-->\n<head>\n<title>abc-8080.us-ca-6.example.com | {code}: {phrase}</title></head>"
        f'<body><h1><span class="x">{phrase}</span> <span>Error code {code}</span></h1>{FILLER}</body></html>'
    )


ERROR_PAGES: dict[str, str] = {
    **{
        f"{server} {code}": _nginx(f"{code} {phrase}", server)
        for server in ("nginx", "nginx/1.27.3", "openresty", "Tengine")
        for code, phrase in NGINX_PHRASES.items()
    },
    **{f"cloudflare {code}": _cloudflare(code, phrase) for code, phrase in CLOUDFLARE.items()},
    **{
        f"haproxy {code}": f"<html><body><h1>{code} {phrase}</h1>\nNo server is available to handle this "
        "request.\n</body></html>\n"
        for code, phrase in GATEWAY_ERRORS.items()
    },
    **{
        f"apache {code}": f'<!DOCTYPE HTML PUBLIC "-//IETF//DTD HTML 2.0//EN">\n<html><head>\n<title>{code} '
        f"{phrase}</title>\n</head><body>\n<h1>{phrase}</h1>\n<p>The server is busy.</p>\n</body></html>"
        for code, phrase in {**PHRASES, 502: "Proxy Error"}.items()
    },
    **{
        f"tomcat {code}": f"<!doctype html><html><head><title>HTTP Status {code} – {phrase}</title></head>"
        f"<body><h1>HTTP Status {code} – {phrase}</h1><hr class='line' />{FILLER}</body></html>"
        for code, phrase in PHRASES.items()
    },
    "envoy no upstream": "no healthy upstream",
    "envoy connect": "upstream connect error or disconnect/reset before headers. reset reason: overflow",
    "envoy timeout": "upstream request timeout",
    "gunicorn": "<html>\n  <head>\n    <title>Internal Server Error</title>\n  </head>\n  <body>\n"
    "    <h1><p>Internal Server Error</p></h1>\n    \n  </body>\n</html>\n",
    "varnish": "<!DOCTYPE html><html><head><title>503 Backend fetch failed</title></head><body>"
    "<h1>Error 503 Backend fetch failed</h1><h3>Guru Meditation:</h3><p>XID: 32770</p></body></html>",
    "google": "<!DOCTYPE html><html lang=en><title>Error 502 (Server Error)!!1</title><p><b>502.</b>",
    "google balancer": "<html><head><title>502 Server Error</title></head><body><h1>Error: Server Error</h1>",
    "cloudfront": '<HTML><HEAD><META CHARSET="utf-8"><TITLE>ERROR: The request could not be satisfied</TITLE>'
    "</HEAD><BODY><H1>502 ERROR</H1><H2>The request could not be satisfied.</H2></BODY></HTML>",
    "iis": "<html><head><title>502 - Web server received an invalid response while acting as a gateway or "
    "proxy server.</title></head><body><h1>Server Error</h1></body></html>",
    "iis in detail": f"<title>IIS 10.0 Detailed Error - 500.19 - Internal Server Error</title>{FILLER}",
    "jetty": "<html><head><title>Error 503 Service Unavailable</title></head><body><h2>HTTP ERROR 503</h2>",
    "django": "<!doctype html><title>Server Error (500)</title><h1>Server Error (500)</h1><p></p>",
    "rails": f"<title>We're sorry, but something went wrong (500)</title>{FILLER}",
    "rails, typographic": f"<title>We&rsquo;re sorry, but something went wrong (500)</title>{FILLER}",
    "tornado": "<html><title>500: Internal Server Error</title><body>500: Internal Server Error</body>",
    "next.js": f"<html><head><title>404: This page could not be found.</title></head>{FILLER}</html>",
    "werkzeug": "<!doctype html>\n<html lang=en>\n<title>500 Internal Server Error</title>\n"
    "<h1>Internal Server Error</h1>\n<p>Either the server is overloaded or there is an error.</p>",
    "lighttpd": '<?xml version="1.0" encoding="iso-8859-1"?>\n<html>\n <head>\n  <title>503 Service Not '
    "Available</title>\n </head>\n <body>\n  <h1>503 Service Not Available</h1>\n </body>\n</html>",
    "litespeed": f"<html><head><title> 503 Service Unavailable\r\n</title></head><h1>503</h1>{FILLER}",
    "heroku": "<html><head><title>Application Error</title></head><body><iframe src='//x.example'></iframe>",
    "spring": "<html><body><h1>Whitelabel Error Page</h1><p>No mapping for /error.</p></body></html>",
    "squid": "<html><head><title>ERROR: The requested URL could not be retrieved</title></head><body></body>",
    "akamai": "<HTML><HEAD>\n<TITLE>Service Unavailable</TITLE>\n</HEAD><BODY>\n<H1>Service Unavailable - "
    "Zero size object</H1>\n</BODY></HTML>",
    "traefik": "Bad Gateway",
    "go": "404 page not found\n",
    "a gateway with its own look": "<!DOCTYPE html><html><head><title>GPU Cloud</title><style>h1{color:red}"
    "</style></head><body><h1>502 Bad Gateway</h1><p>Nothing listens on this port yet.</p></body></html>",
    "no phrase": "<title>Error 502</title><h1>Error 502</h1>",
    "no phrase, http": "<title>HTTP 503</title><p>Try again later.",
    "odd layout": "<TITLE\n LANG='en' >\n\t502&nbsp;Bad\n   Gateway \n</TITLE >",
    "a script before": "<script>let x = '<title>App</title>'</script><title>504 Gateway Timeout</title>",
    "a comment before": "<!-- <title>App</title> --><!--><title>503 Service Unavailable</title>",
    "a drawing before": "<svg><title>Logo</title></svg><title>502 Bad Gateway</title>",
    "a tag inside": "<h1>502 <b>Bad</b> <i title='>'>Gateway</i></h1>",
}

MENTIONS = (
    "502 Bad Gateway",
    "503 Service Unavailable",
    "Service unavailable",
    "503 Service Temporarily Unavailable",
    "504 Gateway Time-out",
    "500 Internal Server Error",
    "Internal Server Error",
    "bad gateway",
    "404 Not Found",
    "Error 502",
    "Application error",
    "no healthy upstream",
    "upstream connect error or disconnect/reset before headers",
)

# Places where a mention is only a mention.
PLACES = {
    "a paragraph": "<title>Chat</title><h1>Chat</h1><p>{}</p>",
    "a title that says more": "<title>How to fix {} in nginx</title><h1>Guide</h1>",
    "a title with a suffix": "<title>{} - HTTP | Handbook</title><h1>{}</h1>" + FILLER,
    "a title with a section": "<title>Docs | {}</title><h1>{}</h1>" + FILLER,
    "a heading that says more": "<title>Handbook</title><h1>What does {} mean?</h1>",
    "a handbook's heading": "<title>Handbook</title><h1>{}</h1>" + FILLER,
    "a second heading": "<title>Status</title><h1>All systems up</h1><h1>{}</h1>",
    "a smaller heading": "<title>Status</title><h1>Incidents</h1><h2>{}</h2><h3>{}</h3>",
    "a table": "<title>Requests</title><table><tr><td>{}</td><td>0</td></tr></table>",
    "a log": "<title>Log</title><pre>12:00 {}\n12:01 {}</pre>",
    "an escaped page": "<title>Log</title><pre>&lt;title&gt;{}&lt;/title&gt;&lt;h1&gt;{}&lt;/h1&gt;</pre>",
    "a comment": "<!-- <title>{}</title><h1>{}</h1> --><title>Chat</title>",
    "a script": "<title>App</title><script>const page = '<title>{}</title><h1>{}</h1>';</script>",
    "a script before the title": "<script>const page = '<title>{}</title>';</script><title>App</title>",
    "a style": "<title>App</title><style>p::after {{ content: '<h1>{}</h1>' }}</style>",
    "a template": "<title>App</title><template><h1>{}</h1></template><noscript><h1>{}</h1></noscript>",
    "a text box": "<title>App</title><textarea><h1>{}</h1></textarea>",
    "a drawing": "<title>App</title><svg><title>{}</title></svg>",
    "an attribute": "<title>App</title><iframe srcdoc='<title>{}</title><h1>{}</h1>'></iframe>",
    "an attribute of a plain tag": "<title>App</title><a title=\"<h1>{}</h1>\" href='/'>x</a>",
    "a description": '<meta name="description" content="{}"><title>App</title>',
    "a choice": "<title>Alerts</title><select><option>{}</option></select>",
    "a sentence without markup": "The last reply was: {}. Everything is fine now.",
}

NORMAL_PAGES: dict[str, str] = {
    f"{mention!r} in {place}": frame.replace("{{", "{").replace("}}", "}").replace("{}", mention)
    for place, frame in PLACES.items()
    for mention in MENTIONS
} | {
    "empty": "",
    "blank": " \n",
    "ok": "ok",
    "jupyter": "<!DOCTYPE HTML><html><head><title>JupyterLab</title></head><body></body></html>",
    "a number": "<title>502</title><h1>502</h1>",
    "a street": "<title>500 Main Street</title><h1>404 Oak Avenue</h1>",
    "a bus": "<title>Error bars: 503</title><h1>503 observations</h1>",
    "an empty title": "<title></title><h1></h1>",
    "an unclosed comment": "<!-- 502 Bad Gateway <title>502 Bad Gateway</title>",
    "an unclosed script": "<script> '<title>502 Bad Gateway</title>'",
    "an unclosed tag": "<p title='<title>502 Bad Gateway</title>",
    "a success": "<title>200 OK</title><h1>200 OK</h1>",
    "a redirect": "<title>302 Found</title><h1>302 Found</h1>",
}
