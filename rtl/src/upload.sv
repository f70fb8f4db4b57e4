// The upload submodule of the message store module (Yang et al., Fig. 10, equation 16): writes a
// stored vote into its slot of the table in host memory, at
//
//   A = H_A + S_w * (H * S_N + S_ID)        S_w = 128, S_N = 4
//
// as two writes of 64 bytes (docs/nic-table.md has the slot byte by byte). The second ends with the
// serial number of the vote, which publishes the slot: whoever carries the writes to the host (a
// PCIe endpoint) must keep their order. Each packet's verdict follows behind its writes, in order.
//
// Latency: two cycles for a stored vote and none for another packet, if nobody waits.
module upload (
    input  logic                          clock,
    input  logic                          reset,
    input  logic [63:0]                   table_base,  // H_A
    input  logic                          in_valid,
    output logic                          in_ready,
    input  nic_pkg::filed_t               in,
    output logic                          write_valid,
    input  logic                          write_ready,
    output logic [63:0]                   write_address,
    output logic [nic_pkg::BEAT_BITS-1:0] write_data,
    output logic                          verdict_valid,
    input  logic                          verdict_ready,
    output nic_pkg::verdict_t             verdict
);
    logic [1:0] written;  // beats of this slot
    logic [63:0] serial;  // of the next vote; the first is 1

    wire stored = in.vote.verdict == nic_pkg::STORED;
    wire [63:0] at = table_base + {23'd0, in.bucket, in.slot, 7'd0};
    wire [1023:0] slot_bytes = {
        serial,             // 120: the commit word
        in.vote.tags,       //  56: the first four tags of the vector
        24'd0,              //  53: zero
        in.vote.count,      //  52: how many tags the vector has
        in.vote.said        //   0: key and digest
    };

    assign write_valid = in_valid && stored && !written[1];
    assign write_address = {at[63:7], written[0] | at[6], at[5:0]};
    assign write_data = written[0] ? slot_bytes[1023:512] : slot_bytes[511:0];
    assign verdict_valid = in_valid && (!stored || written[1]);
    assign verdict = in.vote.verdict;
    assign in_ready = verdict_valid && verdict_ready;

    always_ff @(posedge clock)
        if (reset) begin
            written <= 2'd0;
            serial <= 64'd1;
        end else if (in_valid && in_ready) begin
            written <= 2'd0;
            if (stored) serial <= serial + 64'd1;
        end else if (write_valid && write_ready) written <= written + 2'd1;
endmodule
