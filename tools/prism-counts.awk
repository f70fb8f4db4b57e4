# Adds up what the tests of remote memory count, for the lanes that run them.
{ print }
/ *prism-count / { sub(/.*prism-count /, ""); counts[$1] += $2 }
END { for (name in counts) print "prism: " name, counts[name] | "sort" }
