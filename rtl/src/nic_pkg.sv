// Words that the modules share: verdicts, a vote on its way, the card's settings.
//
// Byte order everywhere: byte i of a packet, of the 52 authenticated bytes or of a tag stands in
// bits [8*i +: 8], so that the wire's little-endian integers are read as they stand.
package nic_pkg;

    // A beat of the packet stream and of the writes into host memory.
    localparam int BEAT_BYTES = 64;
    localparam int BEAT_BITS  = 8 * BEAT_BYTES;

    // Ethernet, IPv4 without options, UDP; then the frame: header, 52 authenticated bytes, vector.
    localparam int FRAME_AT  = 42;
    localparam int SAID_AT   = FRAME_AT + 12;
    localparam int VECTOR_AT = SAID_AT + 52;
    localparam int SAID_BITS = 8 * 52;
    localparam int KEY_BITS  = 8 * 20;
    localparam int TAG_BITS  = 8 * 16;
    localparam int MAX_TAGS  = 128;

    // The table: four slots of 128 bytes a bucket, of a vote's vector the first four tags.
    localparam int SLOTS     = 4;
    localparam int KEPT_TAGS = 4;

    // What becomes of a packet. Below UP_OTHER it ends on the card; from there on the host gets it.
    typedef enum logic [3:0] {
        STORED         = 4'd0,   // stands in a slot of the table
        MALFORMED      = 4'd1,   // a frame cut short, of another version, or whose lengths disagree
        UNKNOWN_SENDER = 4'd2,   // no key for that number
        STALE          = 4'd3,   // at or below the low watermark
        AHEAD          = 4'd4,   // above the high watermark
        BAD_MAC        = 4'd5,   // our tag is wrong, or the vector has another length than n
        REPLAY         = 4'd6,   // the table holds these 52 bytes already
        UP_OTHER       = 4'd8,   // not a datagram to our port
        UP_UNUSUAL     = 4'd9,   // VLAN, IP options, fragment, bytes behind the datagram
        UP_NOT_A_VOTE  = 4'd10,  // a frame with another kind or authenticator, or with a body
        UP_OVERFLOW    = 4'd11,  // a good vote whose bucket is full
        UP_DOUBLE      = 4'd12,  // a good vote beside another of the same key
        OPEN           = 4'd15   // inside of the card only: not decided yet
    } verdict_t;

    // A packet on its way through the modules. Packets stay in the order in which they came; one
    // whose verdict stands is carried along without work.
    typedef struct packed {
        verdict_t                        verdict;
        logic [7:0]                      count;  // tags in the vector
        logic [TAG_BITS-1:0]             own;    // the tag for this replica
        logic [KEPT_TAGS*TAG_BITS-1:0]   tags;   // the first tags of the vector
        logic [SAID_BITS-1:0]            said;   // key and digest
    } vote_t;

    localparam int VOTE_BITS = 4 + 8 + TAG_BITS + KEPT_TAGS * TAG_BITS + SAID_BITS;

    // A vote with its bucket.
    typedef struct packed {
        logic [31:0] bucket;
        vote_t       vote;
    } placed_t;

    // A vote with its bucket and slot.
    typedef struct packed {
        logic [1:0]  slot;
        logic [31:0] bucket;
        vote_t       vote;
    } filed_t;

    localparam int FILED_BITS = 2 + 32 + VOTE_BITS;

    // What a bucket holds: its part of the bitmap, and the votes in its slots.
    typedef struct packed {
        logic [SLOTS-1:0]           occupied;
        logic [SLOTS*SAID_BITS-1:0] said;
    } row_t;

    // Settings, written by the host (config_regs).
    typedef struct packed {
        logic [63:0] table_base;  // H_A
        logic [31:0] seed;        // of Murmur3
        logic        direct;      // index by (seq mod L, type, sender) instead
        logic [63:0] low;         // watermarks: low < seq <= high
        logic [63:0] high;
        logic [31:0] kinds;       // bit k: a frame of kind 16 + k may be a vote
        logic [7:0]  place;       // of this replica in the membership
        logic [7:0]  members;     // n
        logic [15:0] port;        // UDP, bytes as on the wire
        logic [31:0] address;     // IPv4, bytes as on the wire
    } settings_t;

    // Defences that a build for tests can take out (config_regs, TERCIO_ZOO); all zero otherwise.
    typedef struct packed {
        logic replay;     // 10 replays are stored again
        logic double_up;  //  9 a second vote of a key is stored beside the first
        logic overflow;   //  8 a full bucket's first slot is overwritten
        logic mac;        //  7 any tag is right
        logic count;      //  6 a vector of another length is taken
        logic watermark;  //  5 any number is of use
        logic sender;     //  4 senders without a key are verified, with an empty one
        logic lengths;    //  3 cut and overlong packets are taken
        logic frame;      //  2 the frame's version and lengths are not looked at
        logic fragment;   //  1 fragments are taken for whole datagrams
        logic vlan;       //  0 tagged packets are read as if they were not
    } without_t;

endpackage
