/* A byte ring buffer with line reading, for serial consoles. */

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RING_MIN_SIZE 16
#define LINE_END '\n'

struct ring {
    unsigned char *data;
    size_t size;
    size_t head;
    size_t used;
    unsigned long dropped;
};

bool ring_init(struct ring *r, size_t size)
{
    if (size < RING_MIN_SIZE)
        size = RING_MIN_SIZE;
    r->data = malloc(size);
    if (r->data == NULL)
        return false;
    r->size = size;
    r->head = 0;
    r->used = 0;
    r->dropped = 0;
    return true;
}

void ring_free(struct ring *r)
{
    free(r->data);
    r->data = NULL;
    r->size = 0;
    r->used = 0;
}

size_t ring_space(const struct ring *r)
{
    return r->size - r->used;
}

static unsigned char ring_at(const struct ring *r, size_t offset)
{
    return r->data[(r->head + offset) % r->size];
}

size_t ring_write(struct ring *r, const void *source, size_t count)
{
    const unsigned char *bytes = source;
    size_t written = 0;

    while (written < count && ring_space(r) > 0) {
        r->data[(r->head + r->used) % r->size] = bytes[written];
        r->used++;
        written++;
    }
    r->dropped += count - written;
    return written;
}

size_t ring_read(struct ring *r, void *target, size_t count)
{
    unsigned char *bytes = target;
    size_t taken = 0;

    while (taken < count && r->used > 0) {
        bytes[taken] = r->data[r->head];
        r->head = (r->head + 1) % r->size;
        r->used--;
        taken++;
    }
    return taken;
}

/* Copies one line without its end into text; returns -1 if none is complete. */
int ring_read_line(struct ring *r, char *text, size_t room)
{
    size_t length = 0;

    while (length < r->used && ring_at(r, length) != LINE_END)
        length++;
    if (length == r->used || length + 1 > room)
        return -1;
    ring_read(r, text, length);
    text[length] = '\0';
    r->head = (r->head + 1) % r->size;
    r->used--;
    return (int)length;
}

int main(void)
{
    struct ring r;
    char text[32];
    const char *input = "status\nreset\npartial";

    if (!ring_init(&r, 64))
        return EXIT_FAILURE;
    ring_write(&r, input, strlen(input));
    while (ring_read_line(&r, text, sizeof text) >= 0)
        printf("command: %s\n", text);
    ring_free(&r);
    return EXIT_SUCCESS;
}
