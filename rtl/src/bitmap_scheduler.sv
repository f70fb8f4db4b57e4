// Yang et al., Fig. 12, 'scheduler': one port of memory for those who want it at the same time. An
// update comes first, then the host, which frees slots at a checkpoint, then a read. Reads pause
// while an update is under way, so the host waits at most one cycle of every vote's.
//
// Combinational.
module bitmap_scheduler (
    input  logic                          update,
    output logic                          update_granted,
    input  logic [31:0]                   update_bucket,
    input  logic [nic_pkg::SLOTS-1:0]     update_slots,
    input  logic [nic_pkg::SAID_BITS-1:0] update_said,
    input  logic                          free,
    output logic                          free_granted,
    input  logic [31:0]                   free_bucket,
    input  logic [nic_pkg::SLOTS-1:0]     free_slots,
    input  logic                          read,
    output logic                          read_granted,
    input  logic [31:0]                   read_bucket,
    output logic                          request,
    output logic                          write,
    output logic [31:0]                   bucket,
    output logic [nic_pkg::SLOTS-1:0]     write_slots,
    output logic                          write_occupied,
    output logic [nic_pkg::SAID_BITS-1:0] write_said
);
    assign update_granted = update;
    assign free_granted = free && !update;
    assign read_granted = read && !update && !free;

    assign request = update || free || read;
    assign write = update || free;
    assign bucket = update ? update_bucket : free ? free_bucket : read_bucket;
    assign write_slots = update ? update_slots : free_slots;
    assign write_occupied = update;
    assign write_said = update_said;
endmodule
