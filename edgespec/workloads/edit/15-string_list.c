#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INITIAL_CAPACITY 8

struct string_list {
    char **items;
    size_t count;
    size_t capacity;
};

void list_init(struct string_list *list) {
    list->items = NULL;
    list->count = 0;
    list->capacity = 0;
}

static int list_grow(struct string_list *list) {
    size_t wanted = list->capacity ? list->capacity * 2 : INITIAL_CAPACITY;
    char **items = realloc(list->items, wanted * sizeof *items);
    if (items == NULL) {
        return -1;
    }
    list->items = items;
    list->capacity = wanted;
    return 0;
}

int list_add(struct string_list *list, const char *text) {
    if (list->count == list->capacity && list_grow(list) != 0) {
        return -1;
    }
    char *copy = malloc(strlen(text) + 1);
    if (copy == NULL) {
        return -1;
    }
    strcpy(copy, text);
    list->items[list->count++] = copy;
    return 0;
}

long list_find(const struct string_list *list, const char *text) {
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i], text) == 0) {
            return (long)i;
        }
    }
    return -1;
}

void list_print(const struct string_list *list, FILE *out) {
    for (size_t i = 0; i < list->count; i++) {
        fprintf(out, "%s\n", list->items[i]);
    }
}

void list_free(struct string_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i]);
    }
    free(list->items);
    list_init(list);
}
