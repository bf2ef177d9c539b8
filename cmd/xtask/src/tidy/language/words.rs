//! The word list: patterns of the old style, each with its replacement.

/// A pattern that must not occur.
#[derive(Debug)]
pub(super) struct Token {
    /// The name under which findings are counted.
    pub(super) name: &'static str,
    /// A regular expression over one paragraph, comment, message or test name.
    pub(super) pattern: &'static str,
    /// The replacement.
    pub(super) remedy: &'static str,
    /// Headings can contain it.
    pub(super) only_in_sentences: bool,
}

const fn word(name: &'static str, pattern: &'static str, remedy: &'static str) -> Token {
    Token { name, pattern, remedy, only_in_sentences: false }
}

/// Every pattern. `STYLE.md` explains the replacements.
pub(super) const WORDS: &[Token] = &[
    word("tell", r"(?i)\b(?:told|tell(?:s|ing)?)\b", "write notify, report, log, return, receive"),
    word(
        "whoever",
        r"(?i)\b(?:whoever|whomever|whom)\b",
        "name the actor: the client, the caller, the replica",
    ),
    word(
        "nobody",
        r"(?i)\b(?:nobody|somebody|anybody|everybody)\b",
        "name the actor: no client, another replica, any caller",
    ),
    Token {
        name: "free-relative",
        pattern: r"(?:^|[.;:] )(?:Who|What|Whose)\b[^.?]*(?:[.;:,]|$)",
        remedy: "name the thing: the object, the write, the value",
        only_in_sentences: true,
    },
    word("prep-who", r"(?i)\b(?:for|by|to|than) who\b", "name the actor"),
    word("anew", r"(?i)\banew\b|\bfor ever\b|\bin vain\b", "write again, indefinitely, without effect"),
    word("go-on", r"(?i)\b(?:go|goes|going|went|gone) on\b", "write continue, keep running"),
    word("beside", r"(?i)\bbesides?\b", "write next to, alongside, in addition"),
    word(
        "of-its-own",
        r"(?i)\bof (?:its|their|one's|our|his|your) own\b",
        "write its own X, a dedicated X, a custom X",
    ),
    word("no-more", r"(?i)\bno more(?:$|[.,;:)]| (?:and|but|when|once|until)\b)", "write no longer, stops"),
    word(
        "in-place-of",
        r"(?i)\bin the place of\b|\bfor want of\b|\bsave (?:for|that|into|what|where|those|the one)\b",
        "write instead of, because X is missing, except",
    ),
    word(
        "bear-mend",
        r"(?i)\b(?:bears?|bearing|borne|mends?|mended|mending)\b",
        "write have, carry, fix, repair, heal",
    ),
    word(
        "words-of",
        r"(?i)\bin (?:\w+'s |the |its |their |other |so many )words\b",
        "write the message, in the format of",
    ),
    word(
        "become-of",
        r"(?i)\b(?:becomes?|became|comes?|came) of\b",
        "write happens to, the result, the outcome",
    ),
    word("asked-for", r"(?i)\basked for\b", "write requested, desired, configured"),
    word("let-in", r"(?i)\blet(?:s|ting)? (?:in|go|out|through)\b", "write admit, release, drop, allow"),
    word("give-back", r"(?i)\b(?:gives?|gave|given|giving) (?:\w+ )?back\b", "write release, return, free"),
    word(
        "hand-out",
        r"(?i)\b(?:hands?|handed|handing) (?:\w+ )?(?:out|over|on)\b|\bhand-?overs?\b",
        "write return, assign, hand off, transfer, handoff",
    ),
    word("aside", r"(?i)\baside(?:$|[^ ]| [^f]| f[^r])", "write park, parked, on a dedicated thread"),
    word("hold-up", r"(?i)\b(?:holds?|held|holding) (?:\w+ )?up\b", "write delay, block"),
    word("there-is", r"(?i)\b(?:what|that|as) there (?:is|are|was|were)\b", "name the thing"),
    word(
        "look",
        r"(?i)\b(?:a|another|fresh|first|next|each) look\b|\blook(?:s|ed|ing)? (?:again|after)\b",
        "write check, recheck, poll, relist",
    ),
    word(
        "silent",
        r"(?i)\b(?:falls?|fell|fallen|stays?|stayed) silent\b|\b(?:stands?|stood) still\b",
        "write send no data, be idle, not advance",
    ),
    word(
        "on-its-way",
        r"(?i)\bon (?:its|their) way (?:in|out)\b|\b(?:can(?:not)?|may|could|to) be had\b|\bever (?:less|later|longer|fewer)\b",
        "write terminating, unavailable, less and less often",
    ),
    word(
        "archaic",
        r"(?i)\b(?:hence|thereby|thereof|whereby|therein|lest|whence|hitherto|notwithstanding|upon|fares|deeds?|strangers?)\b",
        "write a common word",
    ),
    word("says-so", r"(?i)\b(?:says?|said) so\b", "write reports it, states it"),
    word(
        "us-spelling",
        r"(?i)\b(?:behaviours?|catalogues?|(?:hon|col|fav|neighb)our\w*|labelled|recognis\w*|serialis\w*|ageing)\b",
        "use US spelling",
    ),
];
