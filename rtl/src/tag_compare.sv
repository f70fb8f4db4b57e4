// Yang et al., Fig. 7, 'code comparison': votes in the order of arrival meet the tags that were
// computed, in the same order. A vote whose tag is another becomes BAD_MAC; one that was decided
// before has no tag to wait for. Combinational.
module tag_compare (
    input  logic                         no_mac,     // the defence is taken out
    input  logic                         in_valid,
    output logic                         in_ready,
    input  nic_pkg::vote_t               in,
    input  logic                         tag_valid,
    output logic                         tag_ready,
    input  logic [nic_pkg::TAG_BITS-1:0] tag,
    output logic                         out_valid,
    input  logic                         out_ready,
    output nic_pkg::vote_t               out
);
    wire open = in.verdict == nic_pkg::OPEN;
    wire good = tag == in.own || no_mac;

    assign out_valid = in_valid && (tag_valid || !open);
    assign in_ready = out_ready && (tag_valid || !open);
    assign tag_ready = in_valid && open && out_ready;

    always_comb begin
        out = in;
        if (open && !good) out.verdict = nic_pkg::BAD_MAC;
    end
endmodule
