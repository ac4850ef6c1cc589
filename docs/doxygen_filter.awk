# Headers as Doxygen wants them: `//` becomes `///` where it documents something, `// ...` behind a member `///<`.
#   - The comment at the head of a file is that file's, and is repeated at each of its functions and types.
#   - A comment documents what follows it without a blank line between: the declaration below it, and functions and types
#     behind that one until a blank line. A comment that a blank line follows documents nothing.
#   - "ContractError: ..." becomes the section "Exceptions".
# Bodies of functions pass as they are.

function is_type(text) {
  gsub(/\[\[[^\]]*\]\]/, "", text)
  sub(/^ *template *<.*> *(struct|class)/, " struct", text)
  return text ~ /^ *(struct|class|enum|union) [^(;]*$/
}

# What a statement declares: "function", "type", "alias" or "field"; by its first line, without template arguments.
function kind_of(text) {
  gsub(/\[\[[^\]]*\]\]/, "", text)
  while (gsub(/<[^<>()]*(\([^<>()]*\)[^<>()]*)?>/, "", text)) {}
  if (text ~ /^ *template *$/) return "function"
  if (text ~ /^ *(friend|public|private|protected)/) return "other"
  if (text ~ /^ *using /) return "alias"
  if (text ~ /^ *(struct|class|enum|union) /) return "type"
  if (text ~ /^ *inline constexpr/) return "alias"
  if (text ~ /^[^={]*\(/ || text ~ /operator/) return "function"
  return "field"
}

function documented(text) {
  sub(/^ *\/\/ ?/, "", text)
  gsub(/\\/, "\\\\\\\\", text)
  sub(/ContractError( also)?: /, "@throws octavo::ContractError ", text)
  return "/// " text
}

# Indented lines, formulas and tables, stay as they are, but for lists.
function print_doc(lines, count,    i, text, is_indented, was_indented, is_list) {
  for (i = 1; i <= count; ++i) {
    is_indented = lines[i] ~ /^ *\/\/  /
    if (is_indented && !was_indented) is_list = lines[i] ~ /^ *\/\/ +(-|[0-9]\.) /
    if (is_indented != was_indented && !is_list) print "///"
    text = documented(lines[i])
    if (is_indented && !is_list) sub(/^\/\/\/ /, "///     ", text)
    print text
    was_indented = is_indented
  }
}

# Behind the comment of a declaration: what is said of all in its file.
function print_head() {
  if (level || !heads || kind != "function" && kind != "type") return
  print "/// @par For all of " name
  print_doc(heading, heads)
}

function braces(text,    opened, closed) {
  gsub(/"([^"\\]|\\.)*"/, "", text)
  gsub(/'([^'\\]|\\.)'/, "", text)
  opened = gsub(/[{(]/, "", text)
  closed = gsub(/[})]/, "", text)
  return opened - closed
}

BEGIN { level = 0; pending = 0; group = 0; trailing = 0; body = 0; head = 1 }

/^ *\/\// && !body {
  if (trailing && index($0, "//") == trailing) {
    text = $0
    sub(/\/\//, "///<", text)
    print text
    next
  }
  trailing = 0
  block[++pending] = $0
  next
}

/^ *$/ && !body {
  for (i = 1; i <= pending; ++i) print block[i]
  pending = group = trailing = 0
  print
  next
}

/^#/ && !body {
  if (head && pending) {
    print "/// @file"
    print_doc(block, pending)
    heads = pending
    for (i = 1; i <= heads; ++i) heading[i] = block[i]
    name = FILENAME
    sub(/.*\/octavo\//, "octavo/", name)
  }
  head = pending = group = trailing = 0
  print
  next
}

body {
  print
  body += braces($0)
  if (body <= 0) { body = 0; statement = "" }
  next
}

{
  trailing = 0
  code = $0
  comment = ""
  at = match(code, / +\/\/ /)
  if (at && code !~ /^ *}/) {
    comment = substr(code, at + RLENGTH)
    column = at + RLENGTH - 3
    code = substr(code, 1, at - 1)
    if (comment ~ /^NOLINT/) comment = ""
  } else if (at) {
    code = substr(code, 1, at - 1)
  }
  if (code ~ /^ *(public|private|protected):$/ || code ~ /^ *namespace .*{$/) {
    pending = group = 0
    print code
    next
  }
  starts = statement == ""
  if (starts) kind = kind_of(code)
  statement = statement code
  open += braces(code)
  opens_type = kind == "type" && open == 1 && code ~ /{$/ || is_type(statement) && code ~ /{$/
  ends = opens_type || open <= 0 && code ~ /[;}]$/ || in_enum[level]
  if (starts) {
    documents = pending || group && kind != "field" && kind != "other" && code !~ /^ *}/
    if (pending) {
      print_doc(block, pending)
      group = pending
      for (i = 1; i <= pending; ++i) kept[i] = block[i]
      pending = 0
    } else if (documents) {
      print_doc(kept, group)
    }
    if (comment != "" && (kind == "function" && ends || opens_type)) {
      print "///"
      print documented(comment)
      comment = ""
      documents = 1
    }
    if (documents) print_head()
  }
  if (comment != "" && ends) {
    print code "  ///< " comment
    trailing = column
  } else {
    print code
  }
  if (opens_type) {
    ++level
    in_enum[level] = code ~ /enum /
    groups[level] = group
    for (i = 1; i <= group; ++i) saved[level, i] = kept[i]
    group = open = 0
    statement = ""
  } else if (code ~ /^ *};$/ && level) {
    group = groups[level]
    for (i = 1; i <= group; ++i) kept[i] = saved[level, i]
    --level
    open = 0
    statement = ""
  } else if (open > 0 && code ~ /{$/) {
    body = open
    open = 0
  } else if (ends) {
    open = 0
    statement = ""
  }
}
