/* A fake libnvidia-ml: answers from the file fake_nvml.txt beside it. It knows nothing of GPUs.
 *
 * The file has a key and a value on each line; the rest of the line is the value:
 *     driver 550.163.01           nvmlSystemGetDriverVersion
 *     count 8                     nvmlDeviceGetCount_v2
 *     gpu.3.name NVIDIA H100      a value of GPU 3, with gpu.*.name for all that have none of their own
 *     error.nvmlInit_v2 18        what that function returns
 *     gpu.3.error.nvmlDeviceGetName 15    what it returns for GPU 3; gpu.3.error.* for each function
 *     hang nvmlDeviceGetName      the function never returns
 *     crash nvmlDeviceGetName     the function dereferences NULL
 * What has no value is answered with NVML_ERROR_NOT_SUPPORTED.
 *
 * Structures and numbers are those of NVIDIA's nvml.h, written anew from its documentation; nothing of the provisioner's
 * is included, so that a structure that is wrong there does not come out right here.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <libgen.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SUCCESS 0
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define ARGUMENT_VERSION_MISMATCH 25
#define MOST_GPUS 64

typedef int result;
typedef struct gpu { unsigned index; int mig; } *device;

static char state[1 << 18];
static int is_read;
static struct gpu gpus[MOST_GPUS], migs[MOST_GPUS];

static void read_state(void)
{
    Dl_info self;
    char path[4096];
    FILE *file;
    if (is_read)
        return;
    is_read = 1;
    if (!dladdr((void *)read_state, &self))
        abort();
    snprintf(path, sizeof path, "%s", self.dli_fname);
    strcat(dirname(path), "/fake_nvml.txt");
    file = fopen(path, "r");
    if (!file)
        abort();
    state[0] = '\n';
    state[1 + fread(state + 1, 1, sizeof state - 3, file)] = 0;
    fclose(file);
}

static const char *find(const char *key)
{
    static char values[8][256];
    static int next;
    char wanted[256], *found, *value;
    read_state();
    snprintf(wanted, sizeof wanted, "\n%s ", key);
    found = strstr(state, wanted);
    if (!found)
        return NULL;
    value = values[next++ % 8];
    snprintf(value, 256, "%s", found + strlen(wanted));
    value[strcspn(value, "\n")] = 0;
    return value;
}

static const char *of_gpu(device gpu, const char *name)
{
    char key[200];
    const char *value;
    snprintf(key, sizeof key, "gpu.%u.%s", gpu->index, name);
    value = find(key);
    if (!value) {
        snprintf(key, sizeof key, "gpu.*.%s", name);
        value = find(key);
    }
    return value;
}

/* Hang, crash or error of a function, as the file says it. */
static result enter(const char *function, device gpu)
{
    char key[200];
    const char *value = find("hang");
    if (value && !strcmp(value, function))
        for (;;)
            pause();
    value = find("crash");
    if (value && !strcmp(value, function))
        *(volatile int *)NULL = 0;
    snprintf(key, sizeof key, "error.%s", function);
    value = gpu ? of_gpu(gpu, key) : find(key);
    if (!value && gpu)
        value = of_gpu(gpu, "error.*");
    return value ? atoi(value) : SUCCESS;
}

static result as_text(const char *value, char *text, unsigned length)
{
    if (!value)
        return NOT_SUPPORTED;
    if (strlen(value) >= length)
        return 7;
    strcpy(text, value);
    return SUCCESS;
}

static result as_number(const char *value, unsigned *number)
{
    if (!value)
        return NOT_SUPPORTED;
    *number = strtoul(value, NULL, 0);
    return SUCCESS;
}

static result as_large(const char *value, unsigned long long *number)
{
    if (!value)
        return NOT_SUPPORTED;
    *number = strtoull(value, NULL, 0);
    return SUCCESS;
}

#define ENTER(gpu) do { result entered = enter(__func__, gpu); if (entered) return entered; } while (0)

result nvmlInit_v2(void) { ENTER(NULL); return SUCCESS; }
result nvmlSystemGetDriverVersion(char *text, unsigned length) { ENTER(NULL); return as_text(find("driver"), text, length); }
result nvmlSystemGetNVMLVersion(char *text, unsigned length) { ENTER(NULL); return as_text(find("library"), text, length); }
result nvmlDeviceGetCount_v2(unsigned *count) { ENTER(NULL); return as_number(find("count"), count); }

result nvmlDeviceGetHandleByIndex_v2(unsigned index, device *gpu)
{
    if (index >= MOST_GPUS)
        return INVALID_ARGUMENT;
    gpus[index].index = index;
    ENTER(&gpus[index]);
    *gpu = &gpus[index];
    return SUCCESS;
}

struct pci { char legacy[16]; uint32_t domain, bus, device, id, subsystem; char text[32]; };
_Static_assert(sizeof(struct pci) == 68, "nvmlPciInfo_t");

result nvmlDeviceGetPciInfo_v3(device gpu, struct pci *pci)
{
    const char *value = of_gpu(gpu, "pci");
    ENTER(gpu);
    if (!value || sscanf(value, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device) != 3)
        return NOT_SUPPORTED;
    snprintf(pci->text, sizeof pci->text, "%08X:%02X:%02X.0", pci->domain, pci->bus, pci->device);
    return SUCCESS;
}

result nvmlDeviceGetUUID(device gpu, char *text, unsigned length)
{
    ENTER(gpu);
    return as_text(of_gpu(gpu, gpu->mig ? "mig" : "uuid"), text, length);
}

#define TEXT(function, name) result function(device gpu, char *text, unsigned length) { ENTER(gpu); return as_text(of_gpu(gpu, name), text, length); }
#define NUMBER(function, name) result function(device gpu, unsigned *value) { ENTER(gpu); return as_number(of_gpu(gpu, name), value); }
#define LARGE(function, name) result function(device gpu, unsigned long long *value) { ENTER(gpu); return as_large(of_gpu(gpu, name), value); }

TEXT(nvmlDeviceGetName, "name")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie-generation")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie-width")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie-max-generation")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie-max-width")
NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie-replays")
NUMBER(nvmlDeviceGetPowerUsage, "power")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power-limit")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power-limit-default")
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "pages-pending")
LARGE(nvmlDeviceGetTotalEnergyConsumption, "energy")
LARGE(nvmlDeviceGetCurrentClocksThrottleReasons, "throttle")

struct memory { unsigned version; unsigned long long total, reserved, free, used; };
_Static_assert(sizeof(struct memory) == 40, "nvmlMemory_v2_t");

/* total, reserved by the driver, used */
result nvmlDeviceGetMemoryInfo_v2(device gpu, struct memory *memory)
{
    const char *value = of_gpu(gpu, "memory");
    ENTER(gpu);
    if (memory->version != (sizeof *memory | 2u << 24))
        return ARGUMENT_VERSION_MISMATCH;
    if (!value || sscanf(value, "%llu %llu %llu", &memory->total, &memory->reserved, &memory->used) != 3)
        return NOT_SUPPORTED;
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

struct utilization { unsigned gpu, memory; };

result nvmlDeviceGetUtilizationRates(device gpu, struct utilization *load)
{
    const char *value = of_gpu(gpu, "utilization");
    ENTER(gpu);
    return value && sscanf(value, "%u %u", &load->gpu, &load->memory) == 2 ? SUCCESS : NOT_SUPPORTED;
}

static result two(const char *value, unsigned *one, unsigned *other)
{
    return value && sscanf(value, "%u %u", one, other) == 2 ? SUCCESS : NOT_SUPPORTED;
}

result nvmlDeviceGetEccMode(device gpu, unsigned *now, unsigned *pending) { ENTER(gpu); return two(of_gpu(gpu, "ecc-mode"), now, pending); }
result nvmlDeviceGetMigMode(device gpu, unsigned *now, unsigned *pending) { ENTER(gpu); return two(of_gpu(gpu, "mig-mode"), now, pending); }

result nvmlDeviceGetMigDeviceHandleByIndex(device gpu, unsigned index, device *mig)
{
    ENTER(gpu);
    if (index || !of_gpu(gpu, "mig"))
        return NOT_FOUND;
    migs[gpu->index] = (struct gpu){gpu->index, 1};
    *mig = &migs[gpu->index];
    return SUCCESS;
}

result nvmlDeviceGetTotalEccErrors(device gpu, int kind, int span, unsigned long long *count)
{
    static const char *const names[2][2] = {{"ecc-corrected", "ecc-corrected-aggregate"}, {"ecc-uncorrected", "ecc-uncorrected-aggregate"}};
    ENTER(gpu);
    return as_large(of_gpu(gpu, names[kind & 1][span & 1]), count);
}

/* correctable, uncorrectable, pending, failed */
result nvmlDeviceGetRemappedRows(device gpu, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
    const char *value = of_gpu(gpu, "rows");
    ENTER(gpu);
    return value && sscanf(value, "%u %u %u %u", corrected, uncorrected, pending, failed) == 4 ? SUCCESS : NOT_SUPPORTED;
}

/* "nvlinks 111011": one digit for each link */
result nvmlDeviceGetNvLinkState(device gpu, unsigned link, unsigned *active)
{
    const char *value = of_gpu(gpu, "nvlinks");
    ENTER(gpu);
    if (!value)
        return NOT_SUPPORTED;
    if (link >= strlen(value))
        return INVALID_ARGUMENT;
    *active = value[link] == '1';
    return SUCCESS;
}

result nvmlDeviceGetNvLinkErrorCounter(device gpu, unsigned link, int counter, unsigned long long *count)
{
    char key[64];
    (void)link;
    ENTER(gpu);
    snprintf(key, sizeof key, "nvlink-errors.%d", counter);
    return as_large(of_gpu(gpu, key), count);
}

result nvmlDeviceGetClockInfo(device gpu, int type, unsigned *mhz)
{
    ENTER(gpu);
    return as_number(of_gpu(gpu, type == 2 ? "clock-memory" : type == 1 ? "clock-sm" : "clock-graphics"), mhz);
}

result nvmlDeviceGetMaxClockInfo(device gpu, int type, unsigned *mhz)
{
    ENTER(gpu);
    return as_number(of_gpu(gpu, type == 2 ? "clock-memory-max" : type == 1 ? "clock-sm-max" : "clock-graphics-max"), mhz);
}

result nvmlDeviceGetTemperature(device gpu, int sensor, unsigned *celsius)
{
    ENTER(gpu);
    return sensor ? INVALID_ARGUMENT : as_number(of_gpu(gpu, "temperature"), celsius);
}

struct fabric { unsigned version; unsigned char cluster[16]; int status; unsigned clique; unsigned char state; unsigned health; };
_Static_assert(sizeof(struct fabric) == 36, "nvmlGpuFabricInfo_v2_t");

/* "fabric 3 0 1 0x5 cluster": state, status, clique, health mask, 16 characters */
result nvmlDeviceGetGpuFabricInfoV(device gpu, struct fabric *fabric)
{
    const char *value = of_gpu(gpu, "fabric");
    unsigned state_;
    char cluster[17] = "";
    ENTER(gpu);
    if (fabric->version != (sizeof *fabric | 2u << 24))
        return ARGUMENT_VERSION_MISMATCH;
    if (!value || sscanf(value, "%u %d %u %i %16s", &state_, &fabric->status, &fabric->clique, &fabric->health, cluster) < 4)
        return NOT_SUPPORTED;
    fabric->state = state_;
    memcpy(fabric->cluster, cluster, 16);
    return SUCCESS;
}
