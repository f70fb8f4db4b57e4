// What a packet's first 64 bytes say of it: not for us, unusual, malformed, not a vote; or that it
// may be a vote, with the length it must have. The checks stand in the order of docs/nic-table.md.
// Combinational.
module packet_head (
    input  logic [31:0]                   address,  // ours, bytes as on the wire
    input  logic [15:0]                   port,
    input  logic [31:0]                   kinds,    // bit k: kind 16 + k may be a vote
    input  logic                          no_vlan,  // defences taken out
    input  logic                          no_fragment,
    input  logic                          no_frame,
    // Not every byte of the headers says something here: hardware addresses, checksums.
    /* verilator lint_off UNUSEDSIGNAL */
    input  logic [nic_pkg::BEAT_BITS-1:0] data,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic [6:0]                    bytes,    // how many of the beat are the packet's
    output nic_pkg::verdict_t             verdict,  // OPEN: may be a vote
    output logic [7:0]                    count,    // tags in its vector
    output logic [15:0]                   sender,
    output logic [12:0]                   expected  // bytes of the packet, if it may be a vote
);
    // Ethernet and IPv4; numbers of theirs are big-endian.
    wire [15:0] ethertype = {data[12*8 +: 8], data[13*8 +: 8]};
    wire [7:0]  version_ihl = data[14*8 +: 8];
    wire [15:0] ip_length = {data[16*8 +: 8], data[17*8 +: 8]};
    wire [13:0] fragment = {data[20*8 +: 6], data[21*8 +: 8]};  // 'more' and the offset
    wire [7:0]  protocol = data[23*8 +: 8];
    wire [31:0] to_address = data[30*8 +: 32];
    wire [15:0] to_port = data[36*8 +: 16];
    wire [15:0] udp_length = {data[38*8 +: 8], data[39*8 +: 8]};

    // The frame; numbers are little-endian.
    wire [31:0] frame_length = data[42*8 +: 32];
    wire [7:0]  version = data[46*8 +: 8];
    wire [7:0]  auth_kind = data[47*8 +: 8];
    wire [15:0] auth_length = data[48*8 +: 16];
    wire [31:0] body_length = data[50*8 +: 32];
    wire [7:0]  kind = data[54*8 +: 8];
    wire [7:0]  flags = data[55*8 +: 8];

    localparam logic [7:0] WIRE_VERSION = 8'd2;
    localparam logic [7:0] MAC_VECTOR = 8'd2;

    wire vlan = ethertype == 16'h8100 || ethertype == 16'h88a8;
    wire [33:0] parts = 34'd60 + {18'd0, auth_length} + {2'd0, body_length};
    wire frame_good = version == WIRE_VERSION
        && {2'd0, frame_length} == parts
        && {1'd0, frame_length} + 33'd32 == {17'd0, ip_length};
    wire [7:0] kind_bit = kind - 8'd16;
    wire vote_kind = kind_bit < 8'd32 && kinds[kind_bit[4:0]];
    wire vector_good = auth_length[3:0] == 4'd0 && auth_length != 16'd0
        && auth_length <= 16'(16 * nic_pkg::MAX_TAGS);

    assign count = auth_length[11:4];
    assign sender = data[56*8 +: 16];
    assign expected = 13'(nic_pkg::VECTOR_AT) + {1'b0, auth_length[11:0]};

    always_comb
        if (bytes < 7'(nic_pkg::FRAME_AT)) verdict = nic_pkg::UP_OTHER;
        else if (vlan && !no_vlan) verdict = nic_pkg::UP_UNUSUAL;
        else if (ethertype != 16'h0800 && !vlan) verdict = nic_pkg::UP_OTHER;
        else if (version_ihl[7:4] != 4'd4) verdict = nic_pkg::UP_OTHER;
        else if (protocol != 8'd17 || to_address != address) verdict = nic_pkg::UP_OTHER;
        else if (version_ihl[3:0] != 4'd5) verdict = nic_pkg::UP_UNUSUAL;
        else if (fragment != 14'd0 && !no_fragment) verdict = nic_pkg::UP_UNUSUAL;
        else if (to_port != port) verdict = nic_pkg::UP_OTHER;
        else if ({1'b0, udp_length} + 17'd20 != {1'b0, ip_length}) verdict = nic_pkg::UP_UNUSUAL;
        else if (bytes != 7'(nic_pkg::BEAT_BYTES)) verdict = nic_pkg::MALFORMED;
        else if (!frame_good && !no_frame) verdict = nic_pkg::MALFORMED;
        else if (flags != 8'd0) verdict = nic_pkg::MALFORMED;
        else if (!vote_kind || auth_kind != MAC_VECTOR || body_length != 32'd0)
            verdict = nic_pkg::UP_NOT_A_VOTE;
        else if (!vector_good) verdict = nic_pkg::MALFORMED;
        else verdict = nic_pkg::OPEN;
endmodule
