// How many packets had each verdict. The host reads one counter at a time; reads are combinational.
module counters (
    input  logic              clock,
    input  logic              reset,
    input  logic              count,
    input  nic_pkg::verdict_t verdict,
    input  logic [3:0]        which,
    output logic [31:0]       value
);
    logic [31:0] values[16];
    assign value = values[which];

    always_ff @(posedge clock)
        if (reset) for (int i = 0; i < 16; i++) values[i] <= '0;
        else if (count) values[verdict] <= values[verdict] + 32'd1;
endmodule
