// Holds packets until their verdict comes: then they go up to the host as they are, or end here. A
// ring of BEATS beats, a power of two, and more than the longest vote has (34).
//
// Interface: verdicts come in the order of the packets, one each. One may come before its packet's
// last beat: then the packet goes through as it arrives, however long it is. `verdict_ready` is
// given with the packet's last beat.
//
// Throughput: a beat a cycle.
module packet_hold #(
    parameter int BEATS = 256
) (
    input  logic                          clock,
    input  logic                          reset,
    input  logic                          in_valid,
    output logic                          in_ready,
    input  logic [nic_pkg::BEAT_BITS-1:0] in_data,
    input  logic [6:0]                    in_bytes,
    input  logic                          in_last,
    input  logic                          verdict_valid,
    output logic                          verdict_ready,
    input  nic_pkg::verdict_t             verdict,
    output logic                          up_valid,
    input  logic                          up_ready,
    output logic [nic_pkg::BEAT_BITS-1:0] up_data,
    output logic [6:0]                    up_bytes,
    output logic                          up_last,
    output nic_pkg::verdict_t             up_verdict  // why it goes up
);
    wire beat_valid;
    wire upwards = verdict >= nic_pkg::UP_OTHER;
    wire take = beat_valid && verdict_valid && (!upwards || up_ready);

    fifo #(.WIDTH(nic_pkg::BEAT_BITS + 8), .DEPTH(BEATS)) ring (
        .clock(clock),
        .reset(reset),
        .in_valid(in_valid),
        .in_ready(in_ready),
        .in({in_last, in_bytes, in_data}),
        .out_valid(beat_valid),
        .out_ready(take),
        .out({up_last, up_bytes, up_data})
    );

    assign up_valid = beat_valid && verdict_valid && upwards;
    assign up_verdict = verdict;
    assign verdict_ready = take && up_last;
endmodule
