// Yang et al., Fig. 7, 'message pre-processing': takes packets apart as their beats come, decides
// what can be decided without the MAC, and hands on one vote_t a packet, in order.
//
// Interface: beats of 64 bytes, all full but the last of a packet. A packet that cannot be a vote
// is handed on behind its first beat, so that no packet's length must fit the card's queues; a vote
// behind its last. `key_read` and `key_sender` ask the key table at the first beat; `key_valid`
// stands from the next cycle to the next packet.
//
// Latency: one cycle behind the deciding beat. Throughput: a beat a cycle.
module preprocess (
    input  logic                          clock,
    input  logic                          reset,
    // The rest of both is for the other modules.
    /* verilator lint_off UNUSEDSIGNAL */
    input  nic_pkg::settings_t            settings,
    input  nic_pkg::without_t             without,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic                          in_valid,
    output logic                          in_ready,
    input  logic [nic_pkg::BEAT_BITS-1:0] in_data,
    input  logic [6:0]                    in_bytes,
    input  logic                          in_last,
    output logic                          key_read,
    output logic [15:0]                   key_sender,
    input  logic                          key_valid,
    output logic                          out_valid,
    input  logic                          out_ready,
    output nic_pkg::vote_t                out
);
    localparam int HEAD_SAID = nic_pkg::BEAT_BYTES - nic_pkg::SAID_AT;     // 10 bytes in beat 0
    localparam int HEAD_TAGS = 2 * nic_pkg::BEAT_BYTES - nic_pkg::VECTOR_AT;  // 22 in beat 1

    logic started;         // a packet has begun, and its last beat has not come
    logic swallow;        // its verdict is handed on already
    logic [5:0] number;   // of the next beat
    logic [12:0] length;  // bytes so far
    logic finished;       // the packet is to be handed on

    nic_pkg::verdict_t verdict;
    logic [7:0] count;
    logic [nic_pkg::KEPT_TAGS*nic_pkg::TAG_BITS-1:0] tags;
    logic [nic_pkg::SAID_BITS-1:0] said;
    logic [12:0] expected;
    wire [nic_pkg::TAG_BITS-1:0] own;

    nic_pkg::verdict_t head_verdict;
    wire [7:0] head_count;
    wire [12:0] head_expected;
    packet_head head (
        .address(settings.address),
        .port(settings.port),
        .kinds(settings.kinds),
        .no_vlan(without.vlan),
        .no_fragment(without.fragment),
        .no_frame(without.frame),
        .data(in_data),
        .bytes(in_bytes),
        .verdict(head_verdict),
        .count(head_count),
        .sender(key_sender),
        .expected(head_expected)
    );

    assign in_ready = !finished || out_ready;
    wire beat = in_valid && in_ready;
    wire first = beat && !started;
    wire [12:0] now = (started ? length : 13'd0) + {6'd0, in_bytes};
    wire overrun = started && now > expected;
    assign key_read = first;

    tag_extract extract (
        .clock(clock),
        .beat(beat && !swallow),
        .number(started ? number : 6'd0),
        .data(in_data),
        .place(settings.place),
        .tag(own)
    );

    always_ff @(posedge clock) begin
        if (first) begin
            verdict <= head_verdict;
            count <= head_count;
            said[0 +: 8*HEAD_SAID] <= in_data[8*nic_pkg::SAID_AT +: 8*HEAD_SAID];
            expected <= head_expected;
        end
        if (beat && started && !swallow && number == 6'd1) begin
            said[nic_pkg::SAID_BITS-1 : 8*HEAD_SAID] <= in_data[0 +: 8*(52-HEAD_SAID)];
            tags[0 +: 8*HEAD_TAGS] <= in_data[8*(64-HEAD_TAGS) +: 8*HEAD_TAGS];
        end
        if (beat && started && !swallow && number == 6'd2)
            tags[nic_pkg::KEPT_TAGS*nic_pkg::TAG_BITS-1 : 8*HEAD_TAGS]
                <= in_data[0 +: 8*(64-HEAD_TAGS)];
        if (beat) begin
            length <= now;
            number <= started ? number + 6'd1 : 6'd1;
        end
        if (reset) begin
            started <= 1'b0;
            swallow <= 1'b0;
            finished <= 1'b0;
        end else begin
            if (beat) started <= !in_last;
            if (first) swallow <= head_verdict != nic_pkg::OPEN && !in_last;
            else if (beat) swallow <= (swallow || overrun) && !in_last;
            if (first) finished <= head_verdict != nic_pkg::OPEN || in_last;
            else if (beat) finished <= !swallow && (in_last || overrun);
            else if (out_ready) finished <= 1'b0;
        end
    end

    // What is known of a whole vote but its MAC.
    wire [63:0] sequence_number = said[12*8 +: 64];
    assign out_valid = finished;
    always_comb begin
        out = {verdict, count, own, tags, said};
        for (int i = 0; i < nic_pkg::KEPT_TAGS; i++)
            if (count <= 8'(i)) out.tags[128*i +: 128] = '0;
        if (verdict == nic_pkg::OPEN) begin
            if (!key_valid && !without.sender) out.verdict = nic_pkg::UNKNOWN_SENDER;
            else if (length < expected && !without.lengths) out.verdict = nic_pkg::MALFORMED;
            else if (length > expected && !without.lengths) out.verdict = nic_pkg::UP_UNUSUAL;
            else if (sequence_number <= settings.low && !without.watermark)
                out.verdict = nic_pkg::STALE;
            else if (sequence_number > settings.high && !without.watermark)
                out.verdict = nic_pkg::AHEAD;
            else if (count != settings.members && !without.count)
                out.verdict = nic_pkg::BAD_MAC;
        end
    end
endmodule
