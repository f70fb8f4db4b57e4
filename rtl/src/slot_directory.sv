// The card's own memory (Yang et al., 'on-board DRAM', Fig. 11b): for each bucket the bitmap of its
// slots and, beside the seed's, the 52 bytes of the vote in each, by which replays and double votes
// are told from new votes. One port: a request reads a row, or writes some of its slots.
//
// A write puts `write_occupied` into the bits that `write_slots` names, and `write_said` into those
// slots if they are set; the rest of the row stays, so nobody reads a row in order to write it.
//
// Latency: LATENCY cycles from a read to its row, at least 1; requests may follow each other.
// Memory of FPGAs begins as zeros: all slots are free. A reset does not go through it: the host frees
// all slots after one.
module slot_directory #(
    parameter int BUCKETS = 4096,
    parameter int LATENCY = 2
) (
    input  logic                          clock,
    input  logic                          reset,
    input  logic                          request,
    input  logic                          write,
    /* verilator lint_off UNUSEDSIGNAL */
    input  logic [31:0]                   bucket,  // below BUCKETS
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic [nic_pkg::SLOTS-1:0]     write_slots,
    input  logic                          write_occupied,
    input  logic [nic_pkg::SAID_BITS-1:0] write_said,
    output logic                          row_valid,
    output nic_pkg::row_t                 row
);
    localparam int BITS = $clog2(BUCKETS);
    wire [BITS-1:0] at = bucket[BITS-1:0];

    logic [LATENCY-1:0] valid;
    assign row_valid = valid[LATENCY-1];

    for (genvar s = 0; s < nic_pkg::SLOTS; s++) begin : slot
        logic occupied[BUCKETS];
        logic [nic_pkg::SAID_BITS-1:0] said[BUCKETS];
        logic read_occupied[LATENCY];
        logic [nic_pkg::SAID_BITS-1:0] read_said[LATENCY];
        initial for (int i = 0; i < BUCKETS; i++) occupied[i] = 1'b0;

        always_ff @(posedge clock) begin
            if (request && write && write_slots[s]) begin
                occupied[at] <= write_occupied;
                if (write_occupied) said[at] <= write_said;
            end
            read_occupied[0] <= occupied[at];
            read_said[0] <= said[at];
            for (int i = 1; i < LATENCY; i++) begin
                read_occupied[i] <= read_occupied[i-1];
                read_said[i] <= read_said[i-1];
            end
        end

        assign row.occupied[s] = read_occupied[LATENCY-1];
        assign row.said[nic_pkg::SAID_BITS*s +: nic_pkg::SAID_BITS] = read_said[LATENCY-1];
    end

    always_ff @(posedge clock) begin
        valid[0] <= request && !write && !reset;
        for (int i = 1; i < LATENCY; i++) valid[i] <= valid[i-1] && !reset;
    end
endmodule
